"""OAuth logins at servers: getting, keeping, renewing and ending them."""
