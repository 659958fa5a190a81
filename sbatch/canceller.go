package sbatch

import (
	"context"
	"strings"

	"github.com/cl-slurm/cl-slurm/internal/command"
)

// nameCancellers sets the names of the users who cancelled jobs. The host's directory of users knows the names, and
// not every user has one on the bridge's host. Root needs none.
func (c *Client) nameCancellers(ctx context.Context, jobs []Job) {
	names := map[string]string{"": "", "0": ""}
	for i := range jobs {
		id := jobs[i].CancelledBy
		if _, ok := names[id]; !ok {
			names[id] = c.userName(ctx, id)
		}
		jobs[i].Canceller = names[id]
	}
}

// userName returns the name of the user with a number; "" if it is not known. getent asks the site's directory too, as
// Go's os/user does only with the C library.
func (c *Client) userName(ctx context.Context, id string) string {
	if strings.Trim(id, "0123456789") != "" {
		return id // it is a name
	}
	ctx, cancel := context.WithTimeout(ctx, c.queryTimeout())
	defer cancel()
	out, err := command.Command{Args: []string{"getent", "passwd", id}, Env: append(c.environment(), "LC_ALL=C"), Dir: anyDir}.Output(ctx)
	if err != nil {
		return ""
	}
	name, _, _ := strings.Cut(string(out), ":")
	return strings.Clone(name)
}
