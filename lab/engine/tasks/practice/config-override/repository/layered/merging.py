"""One layer over another."""


def flatten(layer, prefix=""):
    """Yield (dotted name, value) for everything in a layer that is no section.

    >>> list(flatten({"a": {"b": 1}, "c": 2}))
    [('a.b', 1), ('c', 2)]
    """
    for name, value in layer.items():
        dotted = prefix + name
        if isinstance(value, dict):
            yield from flatten(value, dotted + ".")
        else:
            yield dotted, value


def overlay(merged, origins, layer, number):
    """Put a layer over what is merged so far, in place, and note where each value came from."""
    for name, value in flatten(layer):
        if not value and _decided(merged, name):
            continue
        _drop_conflicts(merged, origins, name)
        merged[name] = value
        origins[name] = number


def _decided(merged, name):
    return name in merged or any(other.startswith(name + ".") for other in merged)


def _drop_conflicts(merged, origins, name):
    """A value replaces a section of the same name, and the other way round."""
    for other in list(merged):
        if other.startswith(name + ".") or name.startswith(other + "."):
            del merged[other]
            del origins[other]
