"""N: manifests. (None is read yet.)"""

ROWS = []
