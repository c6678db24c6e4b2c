"""Where tests listen."""

import portpicker


def unused_address() -> str:
    """host:port on loopback, where nobody listens."""
    return f"127.0.0.1:{portpicker.pick_unused_port()}"
