package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// environment is the annotation of a flag with the variables that set it. The first variable takes precedence.
const environment = "environment"

func fromEnvironment(flags *pflag.FlagSet, name string, variables ...string) {
	f := flags.Lookup(name)
	f.Annotations = map[string][]string{environment: variables}
	f.Usage += " (env " + strings.Join(variables, ", ") + ")"
}

// applyDefaults sets each flag that is not on the command line from the environment or else from the configuration file. The
// value becomes the flag's default, so help shows it.
func (a *app) applyDefaults(cmd *cobra.Command) error {
	a.called = cmd.CommandPath()
	flags := cmd.Flags()
	if _, without := cmd.Annotations[storeless]; without {
		if flags.Changed("store") || flags.Changed("config") {
			return misuse("this command does not use your store: omit --store and --config")
		}
		return nil
	}
	flags.Visit(func(f *pflag.Flag) { a.flagged[f.Name] = true })
	var failed error
	set := func(f *pflag.Flag, source string, values ...string) {
		if failed == nil && !f.Changed && a.sources[f.Name] == "" {
			failed = a.preset(f, source, values)
		}
	}
	flags.VisitAll(func(f *pflag.Flag) {
		for _, variable := range f.Annotations[environment] {
			// An empty DATABASE_URL is probably a mistake and must not select the default store. Users empty our own variables on
			// purpose.
			if value, isSet := a.std.env(variable); value != "" || isSet && variable == "DATABASE_URL" {
				set(f, variable, value)
			}
		}
	})
	if failed != nil || a.config == "" {
		return failed
	}
	file, err := readConfig(cmd.Root(), a.config)
	if err != nil {
		return usageError{err}
	}
	for _, section := range []string{sectionOf(cmd), ""} { // the command's own section takes precedence
		for name, values := range file[section] {
			if f := flags.Lookup(name); f != nil {
				set(f, a.config, values...)
			}
		}
	}
	return failed
}

func (a *app) preset(f *pflag.Flag, source string, values []string) error {
	for _, v := range values {
		if err := f.Value.Set(v); err != nil {
			return misuse("%s: invalid value for %s: %w", source, f.Name, plainValue(f, err))
		}
	}
	a.sources[f.Name] = source
	f.DefValue = f.Value.String()
	switch f.Name { // the value may contain a secret
	case "store":
		f.DefValue = a.kinds.shown(a.store)
	case "token":
		f.DefValue = "not shown"
	}
	return nil
}

// A configFile maps section and flag name to values. A section is a command such as jobs.ls, or empty for all commands.
type configFile map[string]map[string][]string

// readConfig reads the file. It returns an error for an unknown command or flag.
func readConfig(root *cobra.Command, path string) (configFile, error) {
	text, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("there is no file %s", path)
	case err != nil:
		return nil, err
	}
	return parseConfig(root, path, string(text))
}

func parseConfig(root *cobra.Command, path, text string) (configFile, error) {
	var tree map[string]any
	if _, err := toml.Decode(text, &tree); err != nil {
		if at, ok := errors.AsType[toml.ParseError](err); ok { // the rest of its text may contain a password
			return nil, fmt.Errorf("%s, line %d: invalid TOML: want lines such as store = \"sqlite:jq.db\"", path, at.Position.Line)
		}
		return nil, fmt.Errorf("%s is not valid TOML", path)
	}
	file := configFile{}
	if err := file.add(root, "", tree); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return file, nil
}

func (c configFile) add(cmd *cobra.Command, section string, tree map[string]any) error {
	for key, value := range tree {
		name := strings.TrimPrefix(section+"."+key, ".")
		if table, ok := value.(map[string]any); ok {
			below := commandBelow(cmd, key)
			if below == nil {
				return fmt.Errorf("unknown command [%s]", name)
			}
			if err := c.add(below, name, table); err != nil {
				return err
			}
			continue
		}
		if !configurable(cmd, key) {
			return fmt.Errorf("%s is not a flag that a file can set", name)
		}
		values, err := texts(value)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if c[section] == nil {
			c[section] = map[string][]string{}
		}
		c[section][key] = values
	}
	return nil
}

// configurable reports whether a file may set the flag. Users must confirm each time with --yes, --force and --repair.
func configurable(cmd *cobra.Command, name string) bool {
	switch name {
	case "config", "help", "yes", "force", "repair":
		return false
	}
	return cmd.Flags().Lookup(name) != nil || cmd.PersistentFlags().Lookup(name) != nil || cmd.InheritedFlags().Lookup(name) != nil
}

// texts returns the value as it would be written on the command line.
func texts(value any) ([]string, error) {
	switch v := value.(type) {
	case string:
		return []string{v}, nil
	case bool:
		return []string{strconv.FormatBool(v)}, nil
	case int64:
		return []string{strconv.FormatInt(v, 10)}, nil
	case []any:
		var all []string
		for _, item := range v {
			text, err := texts(item)
			if err != nil {
				return nil, err
			}
			all = append(all, text...)
		}
		return all, nil
	default:
		return nil, errors.New("want a string, a whole number, true or false, or a list of these")
	}
}

func commandBelow(cmd *cobra.Command, name string) *cobra.Command {
	for _, c := range cmd.Commands() {
		if c.Name() == name {
			return c
		}
	}
	return nil
}

// sectionOf returns the path of the command in the tree, such as jobs.ls.
func sectionOf(cmd *cobra.Command) string {
	if !cmd.HasParent() {
		return ""
	}
	return strings.TrimPrefix(sectionOf(cmd.Parent())+"."+cmd.Name(), ".")
}

// flagError replaces the flag package's message for an invalid value with a plain one.
func flagError(err error) error {
	if bad, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		return fmt.Errorf("--%s %s: %w", bad.GetFlag().Name, bad.GetValue(), plainValue(bad.GetFlag(), errors.Unwrap(bad)))
	}
	return err
}

// plainValue returns an error that says what value the flag wants.
func plainValue(f *pflag.Flag, err error) error {
	switch f.Value.Type() {
	case "int":
		return errors.New("want a whole number")
	case "bool":
		return errors.New("want true or false")
	case "duration":
		return errors.New("want a duration such as 90s or 1h30m")
	}
	return err
}

// changed returns the names of the flags on the command line.
func changed(cmd *cobra.Command) []string {
	var names []string
	cmd.Flags().Visit(func(f *pflag.Flag) { names = append(names, f.Name) })
	return names
}
