"""Reader processes: start them, notice their deaths, end them."""
