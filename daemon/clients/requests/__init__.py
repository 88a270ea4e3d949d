"""What clients ask for, a module for each family of methods: how a request is answered or handed on."""
