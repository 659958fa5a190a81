package config

func mappingKeys() []Key {
	const queues = "the queue's"
	return []Key{
		{Name: "map.users", Type: List, Otherwise: none, Meaning: "Owners of bundles, by name or id at the server, or `\"*\"` for everybody. Each table `[[map]]` decides by the owner how Slurm charges a job; the first one that fits a bundle counts ([Whose job it is](operators/owners.md#the-table-of-owners))."},
		{Name: "map.groups", Type: List, Otherwise: none, Meaning: "Groups of the server by name: owners who are in one. CodaLab's own server does not tell a bridge the groups of owners, and no such entry counts there."},
		{Name: "map.queues", Type: List, Otherwise: "all queues", Meaning: "The queues of the entry, by the NAME of `[queue.NAME]`."},
		{Name: "map.account", Type: Text, Otherwise: queues, Meaning: "The account that Slurm charges."},
		{Name: "map.qos", Type: Text, Otherwise: queues, Meaning: "The QOS."},
		{Name: "map.wckey", Type: Text, Otherwise: queues, Meaning: "The workload characterization key."},
		{Name: "map.reservation", Type: Text, Otherwise: queues, Meaning: "The reservation."},
		{Name: "map.nice", Type: Count, Otherwise: queues, Meaning: "What is added to the nice value of the jobs, in place of the queue's `nice`."},
		{Name: "map.refuse", Type: Text, Otherwise: "the bundles run", Meaning: "A sentence for owners whose bundles do not run here: their bundles fail with it."},
	}
}
