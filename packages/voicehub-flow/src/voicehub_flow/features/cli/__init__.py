"""Commands over feature stores."""
