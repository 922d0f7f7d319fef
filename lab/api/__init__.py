"""The API for programs, `/api/v1`: a token in each request, JSON in and out, one module a noun."""
