package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fairlead/fairlead/core/api/client"
	"github.com/fairlead/fairlead/core/config"
	"github.com/fairlead/fairlead/core/model"
)

// maxFileBytes bounds a definition: what an agent takes.
const maxFileBytes = 1 << 20

// registerFlags are the flags of `register` as the keys of a definition.
type registerFlags struct {
	file    string
	replace bool

	port      uint16
	protocol  string
	vip       string
	intercept []string
	onEmpty   string
	balance   string
	affinity  time.Duration
	hosts     []string
	drain     time.Duration

	instance string
	address  string
	hostPort uint16
	weight   int
	checks   []string
}

func (a *app) registerCommand() *cobra.Command {
	var f registerFlags
	cmd := &cobra.Command{
		Use:   "register NAME | -f FILE",
		Short: "Register a service and its instances on this node",
		Long: `Register a service with instances that run on this node: from flags, or from a
file in the form that services has in the configuration (- is standard input). The
same again changes nothing, and health is kept. What is registered outlives a
restart of the agent; "fairlead deregister" takes it back.

The definition replaces the one that was registered before. Its instances are
added, or replaced where the id is the same; with --replace those that it leaves
out go. A service that the agent's configuration or a file of services_dir has
belongs to that, and is refused here.

A check is KIND=TARGET and how often: http=PATH or http=http://IP:PORT/PATH,
tcp or tcp=IP:PORT, grpc or grpc=SERVICE, then interval= (required), timeout=,
success_before_passing= and failures_before_critical=.`,
		Example: `  fairlead register web --port 80 --instance web-1 --address 127.0.0.1:9001 \
      --check http=/healthz,interval=2s,failures_before_critical=2
  fairlead register -f web.yaml
  fairlead register - <web.yaml`,
		ValidArgsFunction: first(a.completeService),
		RunE:              func(cmd *cobra.Command, args []string) error { return a.register(cmd, &f, args) },
	}
	flags := cmd.Flags()
	flags.StringVarP(&f.file, "file", "f", "", "read the definition from this `FILE`; - is standard input")
	flags.BoolVar(&f.replace, "replace", false, "drop instances that were registered before and that the definition leaves out")
	flags.Uint16Var(&f.port, "port", 0, "the service's `PORT` on its VIP")
	flags.StringVar(&f.protocol, "protocol", "tcp", "transport of the port: tcp, udp, both")
	flags.StringVar(&f.vip, "vip", "", "its `ADDRESS`, the same on every node")
	flags.StringArrayVar(&f.intercept, "intercept", nil, "further `IP:PORT` on this node that leads to it; may be repeated")
	flags.StringVar(&f.onEmpty, "on-empty", "pass", "what those do without an endpoint: pass, refuse")
	flags.StringVar(&f.balance, "balance", "default", "how connections are shared out: default, random, round-robin, least-load, hash")
	flags.DurationVar(&f.affinity, "affinity", 0, "how long a client stays at its endpoint")
	flags.StringArrayVar(&f.hosts, "host", nil, "further HTTP `HOST` that leads to it; may be repeated")
	flags.DurationVar(&f.drain, "drain", 0, "how long connections to an endpoint that is taken out may go on")
	flags.StringVar(&f.instance, "instance", "", "`ID` of an instance on this node")
	flags.StringVar(&f.address, "address", "", "`IP:PORT` where the instance listens")
	flags.Uint16Var(&f.hostPort, "host-port", 0, "`PORT` of this node at which others reach the instance")
	flags.IntVar(&f.weight, "weight", 1, "the instance's share of new connections")
	flags.StringArrayVar(&f.checks, "check", nil, "`CHECK` of the instance: KIND=TARGET,interval=2s; may be repeated")
	complete(cmd, "protocol", "tcp", "udp", "both")
	complete(cmd, "on-empty", "pass", "refuse")
	complete(cmd, "balance", balances()...)
	return cmd
}

func balances() []string {
	var names []string
	for b := model.BalanceDefault; b <= model.BalanceHash; b++ {
		names = append(names, b.String())
	}
	return names
}

func (a *app) register(cmd *cobra.Command, f *registerFlags, args []string) error {
	name, text, err := a.definition(cmd, f, args)
	if err != nil {
		return err
	}
	return a.call(cmd.Context(), func(ctx context.Context, c *client.Client) error {
		done, err := c.Register(ctx, name, text, f.replace)
		if err != nil {
			return err
		}
		conflicts := []conflictJSON{}
		for _, s := range registeredServices(ctx, c, done.Services) {
			a.warnConflicts(s)
			conflicts = append(conflicts, toConflictsJSON(s.Conflicts)...)
		}
		if a.output == "json" {
			return printJSON(a.env.Stdout, struct {
				Services  []string       `json:"services"`
				Changed   bool           `json:"changed"`
				Conflicts []conflictJSON `json:"conflicts"`
			}{done.Services, done.Changed, conflicts})
		}
		said := "registered"
		if !done.Changed {
			said = "was registered already, nothing changed:"
		}
		_, err = fmt.Fprintln(a.env.Stdout, said, strings.Join(done.Services, ", "))
		return err
	})
}

// definition returns the text to register, and what errors call it.
func (a *app) definition(cmd *cobra.Command, f *registerFlags, args []string) (name, text string, err error) {
	file := f.file
	switch {
	case len(args) > 1:
		return "", "", usagef(cmd, "%s takes one service, got %q and %q", cmd.CommandPath(), args[0], args[1])
	case len(args) == 1 && file != "":
		return "", "", usagef(cmd, "%s takes a name or a file, got %q and %q", cmd.CommandPath(), args[0], file)
	case len(args) == 1 && isFile(args[0]):
		file = args[0]
	case len(args) == 0 && file == "":
		return "", "", usagef(cmd, "%s wants the name of a service, or a file with -f", cmd.CommandPath())
	}
	if file == "" {
		text, err = f.text(cmd, args[0])
		return "", text, err
	}
	if flag := ofDefinition(cmd); flag != "" {
		return "", "", usagef(cmd, "--%s has no meaning beside a file: write it into the file", flag)
	}
	data, err := a.readDefinition(file)
	return file, string(data), err
}

// isFile tells a file from the name of a service, which has no dots.
func isFile(arg string) bool {
	return arg == "-" || slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(arg))
}

func (a *app) readDefinition(file string) ([]byte, error) {
	in := a.env.Stdin
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	data, err := io.ReadAll(io.LimitReader(in, maxFileBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	if len(data) > maxFileBytes {
		return nil, fmt.Errorf("%s has more than %d bytes: that is hardly a definition", file, maxFileBytes)
	}
	return data, nil
}

// ofDefinition returns a flag that was set and is a part of the definition.
func ofDefinition(cmd *cobra.Command) (flag string) {
	cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		if f.Changed && f.Name != "file" && f.Name != "replace" {
			flag = f.Name
		}
	})
	return flag
}

// text makes a definition of the flags. What is wrong with it is a usage error
// that names the flag.
func (f *registerFlags) text(cmd *cobra.Command, name string) (string, error) {
	key, err := model.ParseServiceKey(name)
	if err != nil {
		return "", usagef(cmd, "%q names no service: want NAME or NAMESPACE/NAME", name)
	}
	service := map[string]any{
		"namespace": key.Namespace, "name": key.Name, "port": f.port, "protocol": f.protocol, "on_empty": f.onEmpty,
		"balance": f.balance, "affinity": f.affinity.String(), "drain": f.drain.String(),
	}
	if f.vip != "" {
		service["vip"] = f.vip
	}
	if len(f.intercept) > 0 {
		service["intercept"] = f.intercept
	}
	if len(f.hosts) > 0 {
		service["hosts"] = f.hosts
	}
	if cmd.Flags().Changed("instance") {
		instance := map[string]any{"id": f.instance, "host_port": f.hostPort, "weight": f.weight}
		if f.address != "" {
			instance["address"] = f.address
		}
		var checks []map[string]any
		for _, text := range f.checks {
			check, err := parseCheck(text)
			if err != nil {
				return "", usagef(cmd, "--check %s: %w", text, err)
			}
			checks = append(checks, check)
		}
		if len(checks) > 0 {
			instance["checks"] = checks
		}
		service["instances"] = []any{instance}
	} else {
		for _, flag := range []string{"address", "host-port", "weight", "check"} {
			if cmd.Flags().Changed(flag) {
				return "", usagef(cmd, "--%s is of an instance: name it with --instance", flag)
			}
		}
	}
	text, err := json.Marshal(service)
	if err != nil {
		return "", fmt.Errorf("register: %w", err)
	}
	if _, _, err := config.ParseServices("", text); err != nil {
		return "", usagef(cmd, "%s", wrongFlag(err))
	}
	return string(text), nil
}

// wrongFlag names the flag of the first finding about a definition.
func wrongFlag(err error) string {
	var e *config.Error
	if !errors.As(err, &e) {
		return err.Error()
	}
	key := e.Key[strings.LastIndexByte(e.Key, '.')+1:]
	list, _, _ := strings.Cut(key, "[")
	flag, known := map[string]string{
		"name": "NAME", "namespace": "NAME", "on_empty": "--on-empty", "hosts": "--host", "id": "--instance", "host_port": "--host-port",
	}[list]
	switch {
	case strings.Contains(e.Key, ".checks["):
		if flag = "--check"; list != "checks" {
			flag += " " + key
		}
	case !known:
		flag = "--" + list
	}
	return flag + " " + e.Message
}

// parseCheck reads KIND[=TARGET],KEY=VALUE,….
func parseCheck(text string) (map[string]any, error) {
	check := map[string]any{}
	kinds := []string{"http", "tcp", "grpc"}
	counts := []string{"success_before_passing", "failures_before_critical"}
	known := slices.Concat(kinds, []string{"interval", "timeout"}, counts)
	for item := range strings.SplitSeq(text, ",") {
		key, value, hasValue := strings.Cut(item, "=")
		switch {
		case !slices.Contains(known, key):
			return nil, fmt.Errorf("%q is unknown%s; want KIND=TARGET of http, tcp or grpc, then %s", key, config.DidYouMean(key, known), strings.Join(known[3:], ", "))
		case check[key] != nil:
			return nil, fmt.Errorf("%s is there twice", key)
		case key == "tcp" && !hasValue:
			value = "true"
		case !hasValue && key != "grpc":
			return nil, fmt.Errorf("%s has no value", key)
		}
		check[key] = value
		if slices.Contains(counts, key) {
			check[key] = json.Number(value)
		}
	}
	return check, nil
}
