def make_stub(qualname):
    """A class that can be imported and subclassed but not used."""

    def __init__(self, *a, **k):
        raise NotImplementedError(f"torchvision shim: {qualname} is only a stub")

    module, name = qualname.rsplit(".", 1)
    return type(name, (), {"__init__": __init__, "__module__": module})


def module_getattr(modname, cache):
    def __getattr__(name):
        if name.startswith("__"):
            raise AttributeError(name)
        if name not in cache:
            cache[name] = make_stub(f"{modname}.{name}")
        return cache[name]

    return __getattr__
