"""Preflight: what a server does with the requests that runs will send, and what that would do to them."""
