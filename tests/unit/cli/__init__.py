"""The commands, from the outside: arguments and answers in, text and exit statuses out."""
