"""The console: pages for a browser, on the HTTP door; loaded when somebody asks for one (design.md §13)."""
