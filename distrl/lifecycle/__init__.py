"""Run state on ps 0, heartbeats, the stop monitor, and the order of farewells."""
