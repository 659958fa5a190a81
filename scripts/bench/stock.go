package main

// Rates of CodaLab's own server 1.7.3 a second, with MariaDB, on a machine of two cores such as this one
// (docs/stock-server.md, "Limits of the server"). This program does not measure that server.
const (
	stockReports    = 61 // reports of live runs, in one check-in of 300 runs
	stockReportsOf4 = 83 // and in four of them at once
	stockGetBundle  = 180
	stockPostRun    = 85
)

// stock is the name of that server in a figure.
const stock = "codalab_1.7.3"
