// Package provenance describes where the results of runs came from: the command, its image and inputs, who ran it, when,
// where and with what outcome.
//
// The description is the metadata document of an RO-Crate 1.1 (https://w3id.org/ro/crate/1.1) of the profile Process Run
// Crate 0.5 (https://w3id.org/ro/wfrun/process/0.5), which other programs read. It has what the server knows about a bundle,
// so that it can be written at any time, for bundles of CodaLab's own server, too:
//
//	CreateAction        a run: its times, its state, and its failure in error
//	  instrument        its command; the version is the git commit of the directory that cl run --upload sent. Its
//	                    softwareRequirements are cl-slurm, Slurm and the container runtime, with their versions
//	  containerImage    its image, by digest once a worker has told it
//	  object            its inputs, by digest where the worker knows it, the settings of its sweep, and its requests
//	  result            its files and its exit code
//	  agent             its owner
//	  location          the place of each attempt, with its job and the job's times, as far as the bridge tells them; the last one is that of the results,
//	                    and has its site, its GPUs and their driver
//	  resourceUsage     what it used
//
// Contents of bundles never change, and no other bundle gets the uuid of a deleted one. So a uuid names an input for good.
package provenance
