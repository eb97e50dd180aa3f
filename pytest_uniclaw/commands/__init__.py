"""The larger commands of ``uniclaw``, one module each: ``add`` registers its arguments, ``run`` does the work."""
