"""What the Trainer talks to: phases, optimizer routes, losses, model state of one recipe."""
