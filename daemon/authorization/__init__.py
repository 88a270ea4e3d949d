"""OAuth logins at servers: makes, stores, renews and ends them."""
