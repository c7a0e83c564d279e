"""How a server on a socket tells the benchmark where it listens: its port, a line on stdout."""


def tell(port: int) -> None:
    print(port, flush=True)
