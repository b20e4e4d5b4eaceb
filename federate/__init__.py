"""federate: a virtual node in a hub cluster for each target cluster.

The folders are the way of the data; follow a pod from top to bottom:

``model``     what things are: pods, marks, names, leases, quantities (pure)
``patch``     how a change is expressed: three-way merge (pure)
``cluster``   the one door to an API server: client, store, reflector, recorder
``flow``      from change to action: workqueue and controller
``mirror``    hub -> target: the pod goes down
``status``    target -> hub: the truth comes up
``garbage``   mirrors nobody wants go away
``events``    target -> hub: what the target says about a mirror
``node``      the virtual node exists and is alive
``runtime``   it all lives together: leader lease, virtual node, process
``cli``       the command line
"""

__version__ = "0.1.0"
