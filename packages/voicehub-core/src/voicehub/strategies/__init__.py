"""How a step is executed: devices, precision, processes."""
