// Package purgers finds rules of a host by which files are removed when nobody has used them for some time.
//
// It reads the rules of systemd-tmpfiles (tmpfiles.d(5)), the settings of tmpreaper, and the lines of cron's files
// that call tmpwatch(8), tmpreaper(8), or find(1) with an age and a removal. A site may also purge a disk from another
// host, or by the disk's own policies (Lustre's robinhood, GPFS's ILM). No host shows these. A name such as
// /scratch is then the only hint ([Suspicious]).
package purgers
