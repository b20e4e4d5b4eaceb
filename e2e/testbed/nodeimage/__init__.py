"""Make the image of a kind node from Debian packages and Go modules, without an image registry.

For machines that have no registry, such as CI's; elsewhere kind takes its own image. `recipe` says
what goes in and decides nothing else can; `rootfs`, `system_images` and `assembly` carry it out;
`ensure` is what others call. `lesser_runc` is for Docker's daemon where containers may not get
everything that root can have.
"""
