"""Unique slugs."""

from slugs.cutting import cut
from slugs.text import slugify


class Registry:
    """Remembers which slugs are taken.

    >>> pages = Registry()
    >>> pages.claim("News"), pages.claim("News!")
    ('news', 'news-2')
    """

    def __init__(self, *, unicode=False, limit=80):
        self.unicode = unicode
        self.limit = limit
        self._taken = {}

    def __contains__(self, slug):
        return slug in self._taken

    def __len__(self):
        return len(self._taken)

    def claim(self, title):
        """Take and return a slug for `title` that nobody has yet."""
        base = slugify(title, unicode=self.unicode, limit=self.limit) or "page"
        slug, number = base, 1
        while slug in self._taken:
            number += 1
            suffix = f"-{number}"
            slug = cut(base, self.limit - len(suffix)) + suffix
        self._taken[slug] = title
        return slug

    def release(self, slug):
        """Give a slug back. Raises KeyError if it is not taken."""
        del self._taken[slug]

    def title(self, slug):
        return self._taken[slug]
