"""How a change is expressed. Pure."""
