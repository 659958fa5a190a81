// Package realsite tests the product on the site of scripts/site: machines with kernels of
// their own, kernel NFS with its default options, systemd and cgroup v2. The product is installed
// there from the packages of a release, as docs/operators.md tells, and all of it runs as an
// ordinary user.
//
// `make test-site` starts the site, builds the release and runs the tests. They run one
// after the other: each may stop what the others need.
package realsite
