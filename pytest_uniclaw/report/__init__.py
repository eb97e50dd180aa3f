"""Reports: upstream's records, statistics and the gate. Nothing here imports pytest."""
