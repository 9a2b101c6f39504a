package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// root returns a new tree of commands.
func (a *app) root() *cobra.Command {
	root := a.group(a.self, "A durable job queue.")
	addGroups(root, a.groups())
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.std.err)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{flagError(err)} })
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		a.helped = a.applyDefaults(cmd)
		a.help(a.out, cmd)
	})
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error { return a.applyDefaults(cmd) }

	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	commandBelow(root, "help").Short = "show help for a command"
	commandBelow(root, "completion").Short = "generate a shell completion script"

	flags := root.PersistentFlags()
	flags.StringVar(&a.store, "store", "sqlite:jq.db", "`URL` of the store: "+a.kinds.forms())
	fromEnvironment(flags, "store", "JQ_STORE", "DATABASE_URL")
	flags.StringVar(&a.server, "server", "", "`URL` of a jq server to use instead of a store: http://127.0.0.1:7070,\nor unix:PATH for a socket on this machine")
	fromEnvironment(flags, "server", "JQ_SERVER")
	flags.StringVar(&a.bearer, "token", "", "`TOKEN` for the server; other users can read a command line, so prefer the environment")
	fromEnvironment(flags, "token", "JQ_TOKEN")
	flags.StringVar(&a.ca, "ca", "", "`FILE` of CA certificates to verify the server with, instead of the system's")
	fromEnvironment(flags, "ca", "JQ_CA")
	flags.StringVar(&a.cert, "client-cert", "", "`FILE` of the client certificate to present to the server")
	fromEnvironment(flags, "client-cert", "JQ_CLIENT_CERT")
	flags.StringVar(&a.key, "client-key", "", "`FILE` of the private key of the client certificate")
	fromEnvironment(flags, "client-key", "JQ_CLIENT_KEY")
	flags.StringVar(&a.config, "config", "", "`FILE` of flag values in TOML, such as store = \"sqlite:jq.db\"; a table such as\n[jobs.ls] sets the flags of one command")
	fromEnvironment(flags, "config", "JQ_CONFIG")
	a.logging(root)
	return root
}

// group returns a command that only contains subcommands.
func (a *app) group(use, short string, commands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Args: cobra.ArbitraryArgs}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			a.help(a.std.err, cmd)
			return usageError{fmt.Errorf("a command is missing")}
		}
		err := fmt.Errorf("unknown command %q", args[0])
		if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
			err = fmt.Errorf("%w (did you mean %s?)", err, strings.Join(near, " or "))
		}
		return usageError{err}
	}
	cmd.SuggestionsMinimumDistance = 2
	cmd.AddCommand(commands...)
	return cmd
}

// storeless is the annotation of commands that do not use the user's store.
const storeless = "storeless"

// takes checks the number of arguments; most < 0 means no limit. what names the missing argument in the error.
func takes(least, most int, what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) < least:
			return misuse("missing argument: %s", what)
		case most >= 0 && len(args) > most:
			return misuse("unexpected argument %q", args[most])
		}
		return nil
	}
}

func takesNone() cobra.PositionalArgs { return takes(0, 0, "") }

// help prints the help of a command, with defaults from the environment and the configuration file.
func (a *app) help(w io.Writer, cmd *cobra.Command) {
	fmt.Fprintf(w, "%s\n\nUsage: %s\n", about(cmd), usageOf(cmd))
	if cmd.HasAvailableSubCommands() {
		helpCommands(w, cmd)
	}
	if cmd.HasExample() {
		fmt.Fprintf(w, "\nExamples:\n%s\n", strings.ReplaceAll(cmd.Example, "SELF", a.self))
	}
	local, inherited := cmd.LocalFlags(), cmd.InheritedFlags()
	if cmd == cmd.Root() {
		local, inherited = cmd.LocalNonPersistentFlags(), cmd.PersistentFlags()
	}
	a.helpFlags(w, "Flags", local)
	if _, without := cmd.Annotations[storeless]; !without {
		a.helpFlags(w, "Flags of all commands that use a store", inherited)
	}
}

// about returns the long description, or the short one as a sentence.
func about(cmd *cobra.Command) string {
	if cmd.Long != "" {
		return strings.TrimSpace(cmd.Long)
	}
	return strings.ToUpper(cmd.Short[:1]) + strings.TrimSuffix(cmd.Short[1:], ".") + "."
}

func usageOf(cmd *cobra.Command) string {
	if cmd.HasAvailableSubCommands() {
		return cmd.CommandPath() + " COMMAND [flags]"
	}
	return cmd.UseLine()
}

func (a *app) helpFlags(w io.Writer, title string, flags *pflag.FlagSet) {
	if usages := strings.TrimRight(flags.FlagUsages(), "\n"); usages != "" {
		fmt.Fprintf(w, "\n%s:\n%s\n", title, usages)
	}
}
