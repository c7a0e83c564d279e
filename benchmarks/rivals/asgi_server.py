"""wirespeed's own server as an ASGI application under uvicorn, with the tools of http_server.py."""

from _uvicorn import serve
from http_server import server

if __name__ == "__main__":
    serve(server.asgi())
