package cli

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/core/api/client"
)

// completeTimeout is what a person waits for after a tab.
const completeTimeout = time.Second

// completing is what the shell asks for the words that may come next.
type completing = func(cmd *cobra.Command, args []string, text string) ([]string, cobra.ShellCompDirective)

// complete offers words to the shell for the value of a flag.
func complete(cmd *cobra.Command, flag string, words ...string) {
	completeBy(cmd, flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}

// completeBy is [complete] for words that are found when they are asked for.
func completeBy(cmd *cobra.Command, flag string, words completing) {
	// It fails only for a flag that does not exist, which a test would see.
	_ = cmd.RegisterFlagCompletionFunc(flag, words)
}

// first is for commands of which only the first argument has such words.
func first(words completing) completing {
	return func(cmd *cobra.Command, args []string, text string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return words(cmd, args, text)
	}
}

// asked offers what an agent answers. Without an agent there is nothing to offer, and
// no place to say so.
func (a *app) asked(ask func(context.Context, *client.Client) ([]string, error)) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(context.Background(), completeTimeout)
	defer cancel()
	var words []string
	_ = a.call(ctx, func(ctx context.Context, c *client.Client) (err error) {
		words, err = ask(ctx, c)
		return err
	})
	return words, cobra.ShellCompDirectiveNoFileComp
}

// completeService offers the names of services.
func (a *app) completeService(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return a.asked(func(ctx context.Context, c *client.Client) (names []string, err error) {
		list, err := c.Services(ctx)
		for _, s := range list.Services {
			names = append(names, serviceName(s.Key))
		}
		return names, err
	})
}

// completeInstance offers the instances of a service that are the node's own.
func (a *app) completeInstance(service string) ([]string, cobra.ShellCompDirective) {
	return a.asked(func(ctx context.Context, c *client.Client) (ids []string, err error) {
		if service == "" {
			return nil, nil
		}
		d, err := c.Endpoints(ctx, service)
		for _, e := range d.Endpoints {
			if e.Own {
				ids = append(ids, e.Instance)
			}
		}
		return ids, err
	})
}

// completeServer offers the servers of the store that are of use.
func (a *app) completeServer(use func(client.RaftMember) bool) completing {
	return first(func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return a.asked(func(ctx context.Context, c *client.Client) (names []string, err error) {
			st, err := c.RaftPeers(ctx)
			for _, m := range st.Members {
				if use(m) {
					names = append(names, serverName(m))
				}
			}
			return names, err
		})
	})
}

// noFiles has the shell offer no files where a command takes nothing at all.
func noFiles(cmd *cobra.Command) {
	if !strings.Contains(cmd.Use, " ") && !cmd.HasSubCommands() && cmd.ValidArgsFunction == nil && len(cmd.ValidArgs) == 0 {
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
	for _, c := range cmd.Commands() {
		noFiles(c)
	}
}
