// Package assembly builds a bridge, with all that it works with, from a configuration, and runs it.
// cl-bridge serves a site's configuration file; cl-worker, stand-alone, serves the configuration that its
// flags make, on a scheduler for one machine or on Slurm.
//
//	Config ─► ledger, shared directory ─► scheduler ─► cache, stager, collector ─► bridge ─► Run
//
// The commands of cl-bridge that work beside a bridge, or without one, take its parts from here too.
package assembly
