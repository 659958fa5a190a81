// Package assembly builds a bridge with all its parts from a configuration, and runs it. cl-bridge serves
// a site's configuration file; cl-worker, stand-alone, serves a configuration made from its flags, on a
// scheduler for one machine or on Slurm.
//
//	Config ─► ledger, shared directory ─► scheduler ─► cache, stager, collector ─► bridge ─► Run
//
// Commands of cl-bridge take single parts from this package, too.
package assembly
