// Package realsite tests the product on the site of scripts/site: machines with their own
// kernels, kernel NFS with its default options, systemd and cgroup v2. The tests install the
// product from a release's packages, as docs/operators/start.md describes, and run all of it as an
// ordinary user.
//
// `make test-site` starts the site, builds the release and runs the tests. They run one after the
// other, because each may stop services that the others need.
package realsite
