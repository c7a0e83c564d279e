__pyx_capi__: dict[str, object]  # what other compiled modules cimport
