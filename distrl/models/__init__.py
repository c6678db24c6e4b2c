"""Networks and losses of one algorithm, as graphs: no session, no queue, no device."""
