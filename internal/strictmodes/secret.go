package strictmodes

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// SecretError says that others can read a secret.
type SecretError struct {
	// Kind is the kind of the secret, such as "password".
	Kind, Path string
	// Owner is set if the file belongs to another user, else others may read it by its mode or its list.
	Owner bool
	cure  string
}

// Error returns a sentence with the cure.
func (e *SecretError) Error() string {
	if e.Owner {
		return fmt.Sprintf("the %s file %s belongs to another user: %s", e.Kind, e.Path, e.cure)
	}
	return fmt.Sprintf("the %s file %s may be read by others: %s", e.Kind, e.Path, e.cure)
}

// maxSecret bounds the size of a file with a secret.
const maxSecret = 1 << 20

// ReadSecret reads a file with a secret of a kind, such as "password". It refuses a file that others can read
// ([CheckSecret]). It reads the file that it has checked, also if another one is put in its place.
func ReadSecret(kind, path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read %s file: %w", kind, err)
	}
	defer func() { _ = f.Close() }() // it is only read
	if err := CheckSecret(kind, f); err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, maxSecret))
	if err != nil {
		return nil, fmt.Errorf("read %s file: %w", kind, err)
	}
	return data, nil
}

// ReadOwnSecret reads the file of a secret that a program goes on to use, such as a token. It is [ReadSecret], and also
// refuses a file that others can replace ([Account.Check]): the program would act by what they put there.
func ReadOwnSecret(kind, path string) ([]byte, error) { return Current().ReadOwnSecret(kind, path) }

// ReadOwnSecret is the function of that name for an account.
func (a Account) ReadOwnSecret(kind, path string) ([]byte, error) {
	data, err := ReadSecret(kind, path)
	if err != nil {
		return nil, err
	}
	if err := a.Check(path); err != nil {
		return nil, fmt.Errorf("the %s file: %w", kind, err)
	}
	return data, nil
}

// Alone reports whether a process runs in a pod of Kubernetes, or in a job of AWS Batch or of Azure Batch. No other
// account writes to the volumes of such a container, whose root directories may be open to all: nobody can replace what lies
// there.
func Alone(getenv func(string) string) bool {
	for _, name := range []string{"KUBERNETES_SERVICE_HOST", "AWS_BATCH_JOB_ID", "AZ_BATCH_TASK_ID"} {
		if getenv(name) != "" {
			return true
		}
	}
	return false
}

// CheckSecretFile is CheckSecret for a file that another package reads.
func CheckSecretFile(kind, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("read %s file: %w", kind, err)
	}
	return errors.Join(CheckSecret(kind, f), f.Close())
}

// CheckSecret returns a *SecretError for an open file with a secret of a kind if others can read it. The file has to
// belong to this process's user, with no permission of the group and of others, or to root, who may let a group read it.
// A POSIX access control list shows in the permissions of the group (acl(5)). An NFSv4 list does not, and may name only the
// user and root, or, in root's file, those that root lets read it.
//
// CodaLab's own worker refuses its password file so (codalab/worker/main.py: connect_to_codalab_server). The rule for
// root's files is PostgreSQL's for its TLS key (src/backend/libpq/be-secure-common.c: check_ssl_key_file_permissions):
// systems keep keys that several services share in such files.
func CheckSecret(kind string, f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("read %s file: %w", kind, err)
	}
	uid, gid, known := owner(info)
	if !known {
		uid = os.Geteuid()
	}
	if err := checkSecret(kind, f.Name(), info.Mode(), uid, os.Geteuid()); err != nil {
		return err
	}
	list, err := nfs4List(f)
	if err != nil {
		return fmt.Errorf("read the access control list of the %s file %s: %w", kind, f.Name(), err)
	}
	entries, err := parseNFS4(list)
	if err != nil {
		return fmt.Errorf("the %s file %s: %w", kind, f.Name(), err)
	}
	return checkList(kind, f.Name(), entries, uid, gid, Account{UID: os.Geteuid(), Name: userName(os.Geteuid())})
}

// checkList refuses a secret that others than an account can read or write by an NFSv4 list. Root's file may name users and
// groups that read it.
func checkList(kind, path string, list nfs4ACL, owner, gid int, a Account) error {
	others := list.allowed(gid, nfs4Write|nfs4Control, false)
	for _, p := range list.allowed(gid, nfs4ReadData, false) {
		if owner != 0 || a.UID == 0 || p.Kind == Everybody {
			others = append(others, p)
		}
	}
	for _, p := range others {
		if !a.trusts(p) {
			return &SecretError{Kind: kind, Path: path, cure: "take " + nameOf(p) + " out of its access control list with nfs4_editfacl"}
		}
	}
	return nil
}

// checkSecret is CheckSecret for the user of an id.
func checkSecret(kind, path string, mode fs.FileMode, owner, user int) error {
	switch foreign := owner != user && owner != 0; {
	case foreign && user != 0:
		return &SecretError{Kind: kind, Path: path, Owner: true, cure: "give a file of your own"}
	case owner == 0 && user != 0 && mode.Perm()&0o037 != 0:
		return &SecretError{Kind: kind, Path: path, cure: "chmod 600 it, or, as it is root's, 640 for a group"}
	case (owner != 0 || user == 0) && mode.Perm()&0o077 != 0:
		return &SecretError{Kind: kind, Path: path, cure: "chmod 600 it"}
	}
	return nil
}
