package release

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

const sumsFile = "SHA256SUMS"

// archive packs the folder, a zip for Windows and else a tar.
func (b *build) archive(s System, stage string) error {
	pack, name := b.tar, b.archiveName(s)
	if s.OS == "windows" {
		pack = b.zip
	}
	f, err := os.Create(filepath.Join(b.Out, name))
	if err != nil {
		return err
	}
	return closing(f, pack(f, stage))
}

func (b *build) archiveName(s System) string {
	if s.OS == "windows" {
		return b.name(s) + ".zip"
	}
	return b.name(s) + ".tar.gz"
}

// closing closes what was written. The first error counts.
func closing(c io.Closer, err error) error {
	if closed := c.Close(); err == nil {
		err = closed
	}
	return err
}

// tar writes the folder without what differs from machine to machine: owners, times, and rights but those that we mean.
func (b *build) tar(to io.Writer, stage string) error {
	compressed, err := gzip.NewWriterLevel(to, gzip.BestCompression)
	if err != nil {
		return err
	}
	w := tar.NewWriter(compressed)
	err = eachFile(stage, func(name string, mode fs.FileMode, text []byte) error {
		head := &tar.Header{Name: name, Mode: int64(mode), Size: int64(len(text)), ModTime: b.at, Typeflag: tar.TypeReg, Format: tar.FormatUSTAR}
		if err := w.WriteHeader(head); err != nil {
			return err
		}
		_, err := w.Write(text)
		return err
	})
	return closing(compressed, closing(w, err))
}

func (b *build) zip(to io.Writer, stage string) error {
	w := zip.NewWriter(to)
	err := eachFile(stage, func(name string, mode fs.FileMode, text []byte) error {
		head := &zip.FileHeader{Name: name, Method: zip.Deflate, Modified: b.at}
		head.SetMode(mode)
		file, err := w.CreateHeader(head)
		if err != nil {
			return err
		}
		_, err = file.Write(text)
		return err
	})
	return closing(w, err)
}

// eachFile goes through the files in the order of their names, which begin with that of the folder.
func eachFile(folder string, see func(name string, mode fs.FileMode, text []byte) error) error {
	return filepath.WalkDir(folder, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		inside, err := filepath.Rel(folder, file)
		if err != nil {
			return err
		}
		mode := fs.FileMode(0o644)
		if strings.HasPrefix(entry.Name(), "jobq") && path.Ext(strings.TrimSuffix(entry.Name(), ".exe")) == "" {
			mode = 0o755
		}
		return see(path.Join(filepath.Base(folder), filepath.ToSlash(inside)), mode, text)
	})
}

// writeSums writes the checksums of all files of the folder, as sha256sum reads them.
func writeSums(folder string) error {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	var lines strings.Builder
	for _, entry := range entries {
		if entry.Name() == sumsFile {
			continue
		}
		sum, err := sumOf(filepath.Join(folder, entry.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&lines, "%s  %s\n", sum, entry.Name())
	}
	return write(filepath.Join(folder, sumsFile), []byte(lines.String()))
}

func sumOf(file string) (string, error) {
	text, err := os.ReadFile(file)
	return fmt.Sprintf("%x", sha256.Sum256(text)), err
}
