"""Keeping slugs short."""


def cut(slug, limit):
    """Shorten to at most `limit` characters, between words if the first word fits.

    >>> cut("one-two-three", 9)
    'one-two'
    """
    if limit < 1:
        raise ValueError(f"limit must be at least 1, not {limit}")
    if len(slug) <= limit:
        return slug
    kept = slug[: limit + 1].rpartition("-")[0]
    return (kept or slug[:limit]).strip("-")
