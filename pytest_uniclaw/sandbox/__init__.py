"""Where executors run: containers, local namespaces, and the images behind them. The only importer of ``docker``."""
