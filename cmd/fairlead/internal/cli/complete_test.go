package cli

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// offered is what the shell is told to offer.
func offered(t *testing.T, cmd *command, args string) (words string, files bool) {
	t.Helper()
	if code := cmd.run(append([]string{"__complete"}, strings.Split(args, " ")...)...); code != 0 {
		t.Errorf("%q: exit code %d: %s", args, code, cmd.err.String())
	}
	words, directive, _ := strings.Cut(cmd.out.String(), ":")
	return words, strings.TrimSpace(directive) == "0"
}

// Files are offered where a command takes one, and nowhere else.
func TestFilesAreOffered(t *testing.T) {
	take := []string{
		"fairlead config validate", "fairlead dev exec", "fairlead man", "fairlead plugin conform",
		"fairlead snapshot inspect", "fairlead snapshot restore", "fairlead snapshot save",
	}
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			walk(sub)
		}
		if c.Hidden || c.HasSubCommands() || c.Name() == "help" {
			return
		}
		_, args, _ := strings.Cut(c.CommandPath(), " ")
		if _, files := offered(t, newCommand(t), args+" "); files != slices.Contains(take, c.CommandPath()) {
			t.Errorf("%s offers files: %v", c.CommandPath(), files)
		}
	}
	walk((&app{env: newCommand(t).Env}).root())
}

// What has a name is offered by it, as the agent knows it.
func TestNamesAreOffered(t *testing.T) {
	services, raft := serveServices(t, fakeServices{asked: new([]string)}), serveRaft(t, fakeLeader())
	for _, c := range []struct{ api, args, want string }{
		{services, "endpoints ", "web\nops/db\n"},
		{services, "endpoints web ", ""},
		{services, "stats ", "web\nops/db\n"},
		{services, "register ", "web\nops/db\n"},
		{services, "deregister ", "web\nops/db\n"},
		{services, "deregister web --instance ", "web-1\nweb-2\n"},
		{services, "deregister nope --instance ", ""},
		{services, "observe --service ", "web\nops/db\n"},
		{services, "maintenance on --service ", "web\nops/db\n"},
		{services, "maintenance off --service web --instance ", "web-1\nweb-2\n"},
		{services, "maintenance on --instance ", ""},
		{raft, "raft transfer ", "n2\n"},
		{raft, "raft transfer n2 ", ""},
		{raft, "raft remove ", "n1\nn2\nfedcba9876543210\n"},
		{raft, "raft remove n2 ", ""},
	} {
		if words, files := offered(t, newCommand(t), "--api "+c.api+" "+c.args); words != c.want || files {
			t.Errorf("%q offers %q, files: %v, want %q", c.args, words, files, c.want)
		}
	}
}
