package killed;

import java.io.File;
import java.io.FilterOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.net.URI;
import java.net.URISyntaxException;
import java.nio.file.Files;
import java.util.Arrays;
import java.util.HashSet;
import java.util.Set;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.ChecksumFs;
import org.apache.hadoop.fs.DelegateToFileSystem;
import org.apache.hadoop.fs.FsConstants;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

/**
 * Copies a folder after each call that changes the disk, in what Spark's driver and tasks write through.
 *
 * <p>One call at a time: what is copied is what a SIGKILL right after that call leaves. A folder is deleted
 * file by file, as the system does it. States whose files have the same names and lengths, but for the random
 * parts of names, are copied once. killed_states.py has Spark's own compiler compile this, which is Java
 * without lambdas and generic methods.
 */
public class KeptStates {
    private static final String RANDOM =
        "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|(?<=[-_.])[0-9a-f]{8,}|[0-9]{12,}";
    private static final Set<String> seen = new HashSet<String>();
    private static File folder;
    private static File copies;
    private static int calls;

    /** From now on, copies of `from` go to `to`/0, `to`/1 and so on. */
    public static synchronized void begin(String from, String to) {
        folder = new File(from);
        copies = new File(to);
        seen.clear();
        calls = 0;
    }

    /** Ends it; how many calls changed the folder. */
    public static synchronized int end() {
        folder = null;
        return calls;
    }

    static void changed(File file) throws IOException {
        if (folder == null || !file.getAbsolutePath().startsWith(folder.getPath() + "/")) {
            return;
        }
        calls++;
        StringBuilder names = new StringBuilder();
        list(folder, names);
        String[] lines = names.toString().split("\n");
        Arrays.sort(lines);
        if (seen.add(Arrays.toString(lines))) {
            copy(folder, new File(copies, String.valueOf(seen.size() - 1)));
        }
    }

    private static void list(File at, StringBuilder names) {
        String name = at.getPath().substring(folder.getPath().length()).replaceAll(RANDOM, "#");
        names.append(name).append(' ').append(at.isFile() ? at.length() : -1).append('\n');
        File[] inside = at.listFiles();
        for (int i = 0; inside != null && i < inside.length; i++) {
            list(inside[i], names);
        }
    }

    private static void copy(File from, File to) throws IOException {
        File[] inside = from.listFiles();
        if (inside == null) {
            Files.copy(from.toPath(), to.toPath());
            return;
        }
        to.mkdirs();
        for (int i = 0; i < inside.length; i++) {
            copy(inside[i], new File(to, inside[i].getName()));
        }
    }

    /** The disk, below the checksums. */
    public static class Disk extends RawLocalFileSystem {
        public boolean rename(Path from, Path to) throws IOException {
            synchronized (KeptStates.class) {
                boolean done = super.rename(from, to);
                changed(pathToFile(to));
                return done;
            }
        }

        public boolean delete(Path path, boolean recursive) throws IOException {
            synchronized (KeptStates.class) {
                File[] inside = recursive ? pathToFile(path).listFiles() : null;
                for (int i = 0; inside != null && i < inside.length; i++) {
                    delete(new Path(path, inside[i].getName()), true);
                }
                boolean done = super.delete(path, recursive);
                changed(pathToFile(path));
                return done;
            }
        }

        public boolean truncate(Path path, long length) throws IOException {
            synchronized (KeptStates.class) {
                boolean done = super.truncate(path, length);
                changed(pathToFile(path));
                return done;
            }
        }

        protected boolean mkOneDirWithMode(Path path, File file, FsPermission mode) throws IOException {
            synchronized (KeptStates.class) {
                boolean done = super.mkOneDirWithMode(path, file, mode);
                changed(file);
                return done;
            }
        }

        protected OutputStream createOutputStreamWithMode(Path path, boolean append, FsPermission mode)
            throws IOException {
            synchronized (KeptStates.class) {
                OutputStream opened = super.createOutputStreamWithMode(path, append, mode);
                changed(pathToFile(path));
                return new Written(opened, pathToFile(path));
            }
        }
    }

    /** A file that is being written. */
    private static class Written extends FilterOutputStream {
        private final File file;

        Written(OutputStream to, File file) {
            super(to);
            this.file = file;
        }

        public void write(int one) throws IOException {
            write(new byte[] {(byte) one}, 0, 1);
        }

        public void write(byte[] bytes, int from, int count) throws IOException {
            synchronized (KeptStates.class) {
                out.write(bytes, from, count);
                changed(file);
            }
        }
    }

    /** What Hadoop's FileSystem has for file:. */
    public static class Local extends LocalFileSystem {
        public Local() {
            super(new Disk());
        }
    }

    /** What Hadoop's FileContext has for file:. */
    public static class LocalContext extends ChecksumFs {
        public LocalContext(URI uri, Configuration conf) throws IOException, URISyntaxException {
            super(new RawContext(conf));
        }
    }

    private static class RawContext extends DelegateToFileSystem {
        RawContext(Configuration conf) throws IOException, URISyntaxException {
            super(FsConstants.LOCAL_FS_URI, new Disk(), conf, "file", false);
        }

        public int getUriDefaultPort() {
            return -1;
        }

        public boolean isValidName(String name) {
            return true;
        }
    }
}
