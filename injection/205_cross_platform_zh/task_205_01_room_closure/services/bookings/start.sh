umask 077
exec python3 -u server.py 8310
