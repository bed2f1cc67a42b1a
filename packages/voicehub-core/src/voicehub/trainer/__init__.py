"""The Trainer and the parts it is wired from. Import names from the module that defines them."""
