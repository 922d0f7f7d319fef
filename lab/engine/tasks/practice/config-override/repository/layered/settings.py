"""The merged settings."""

from layered.merging import overlay


class Settings:
    """Layers merged into one; names are dotted.

    >>> Settings({"a": {"b": 1}}, {"a": {"b": 2}})["a.b"]
    2
    """

    def __init__(self, *layers):
        self._values = {}
        self._origins = {}
        for number, layer in enumerate(layers):
            overlay(self._values, self._origins, layer, number)

    def __getitem__(self, name):
        return self._values[name]

    def __contains__(self, name):
        return name in self._values

    def get(self, name, default=None):
        return self._values.get(name, default)

    def section(self, name):
        """Return the names and values below `name`, without that prefix."""
        start = name + "."
        return {key[len(start) :]: value for key, value in self._values.items() if key.startswith(start)}

    def origin(self, name):
        """Return the number of the layer that decided. Raises KeyError for a name nobody set."""
        return self._origins[name]
