package cli

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/sqlite"
)

func (a *app) backup() *cobra.Command {
	return &cobra.Command{
		Use:   "backup FILE",
		Short: "copy an SQLite store to a new file, while it is in use",
		Long: "Copy a store in an SQLite file, as it is at one moment, to a new file. Servers and workers go on meanwhile, and need not\n" +
			"be reached: the store's own file is enough. The copy is complete by itself; restore puts it in a store's place. A backup\n" +
			"that was broken off leaves nothing under the name of FILE.",
		Args:    takes(1, 1, "a new file for the backup"),
		Example: "  SELF backup jq-monday.db\n  SELF restore jq-monday.db",
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := a.inFile("backed up", "make a dump of its schema (pg_dump --schema=jq) or a copy of the cluster (pg_basebackup)")
			if err != nil {
				return err
			}
			return a.using(cmd.Context(), toRead, func(s jq.Store) error {
				file, ok := s.(*sqlite.Store)
				if !ok {
					return errors.New("this store is in no file")
				}
				if err := file.Backup(cmd.Context(), args[0]); err != nil {
					return err
				}
				size := int64(0)
				if info, err := os.Stat(args[0]); err == nil {
					size = info.Size()
				}
				_, err := fmt.Fprintf(a.out, "backed up %s to %s (%d KiB)\n", printable(p.shown), printable(args[0]), size>>10)
				return err
			})
		},
	}
}

func (a *app) restore() *cobra.Command {
	return &cobra.Command{
		Use:   "restore FILE",
		Short: "put a backup in the place of an SQLite store",
		Long: "Put a backup in the place of a store in an SQLite file, of which there need be nothing left. Stop every process that uses\n" +
			"the store first: while one has it open, nothing is changed. The restored store is fenced, so that no lease and no id of\n" +
			"the lost time is given again; start workers afterwards. The file that was there is kept under the name that is printed.\n\n" +
			"A restore that was broken off left either the store as it was or the restored one. Repeat it.",
		Args: takes(1, 1, "the file that backup has made"),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := a.inFile("restored", "restore the dump or the copy by its own tools (pg_restore, psql), then run "+a.self+" fence before workers start")
			if err != nil {
				return err
			}
			done, err := sqlite.Restore(cmd.Context(), p.path, args[0])
			if err != nil {
				return err
			}
			fmt.Fprintf(a.out, "restored %s from %s: %s, epoch %d; workers can start\n",
				printable(p.shown), printable(args[0]), plural(done.Jobs), done.Epoch)
			if done.Kept != "" {
				fmt.Fprintf(a.out, "what was there is kept as %s: delete it when you do not need it\n", printable(done.Kept))
			}
			return nil
		},
	}
}

// inFile is the place of a store in a file, or what to do with another.
func (a *app) inFile(done, postgres string) (place, error) {
	p, err := a.place()
	if err != nil {
		return p, err
	}
	switch p.kind {
	case "sqlite":
		return p, nil
	case "postgres":
		return p, fmt.Errorf("a store in Postgres is %s with its database: %s", done, postgres)
	case "server":
		return p, fmt.Errorf("a server's store is %s where it is: name that store by --store there", done)
	default:
		return p, fmt.Errorf("%s can not be %s: it holds jobs only until its process ends", p.shown, done)
	}
}
