import com.alibaba.otter.canal.client.CanalConnector;
import com.alibaba.otter.canal.client.CanalConnectors;
import com.alibaba.otter.canal.protocol.CanalEntry;
import com.alibaba.otter.canal.protocol.Message;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;

/** Does what each line of standard input asks of canal's client, and answers with lines that end with one of a dot. */
public class CanalProbe {
    static CanalConnector canal;

    public static void main(String[] given) throws Exception {
        BufferedReader asked = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = asked.readLine()) != null; ) {
            StringBuilder answer = new StringBuilder();
            try {
                obey(line.split(" "), answer);
            } catch (Exception fault) {
                answer.append("error ").append(String.valueOf(fault.getMessage()).replace('\n', ' ')).append('\n');
            }
            System.out.print(answer);
            System.out.println(".");
            System.out.flush();
        }
        System.exit(0);
    }

    static void obey(String[] words, StringBuilder answer) throws Exception {
        switch (words[0]) {
            case "connect": { // destination user password port ...
                List<SocketAddress> addresses = new ArrayList<>();
                for (int n = 4; n < words.length; n++)
                    addresses.add(new InetSocketAddress("127.0.0.1", Integer.parseInt(words[n])));
                String user = words[2].equals("-") ? "" : words[2], password = words[3].equals("-") ? "" : words[3];
                canal = addresses.size() == 1
                    ? CanalConnectors.newSingleConnector(addresses.get(0), words[1], user, password)
                    : CanalConnectors.newClusterConnector(addresses, words[1], user, password);
                canal.connect();
                break;
            }
            case "subscribe": canal.subscribe(words.length > 1 ? words[1] : ".*\\..*"); break;
            case "get": show(canal.getWithoutAck(Integer.parseInt(words[1]), 2L, TimeUnit.SECONDS), answer); break;
            case "drain": { // entries of a batch; until nothing comes; all of them acknowledged
                long rows = 0, begin = System.nanoTime();
                for (Message message; (message = canal.getWithoutAck(Integer.parseInt(words[1]), 1L, TimeUnit.SECONDS)).getId() != -1; ) {
                    for (CanalEntry.Entry entry : message.getEntries())
                        if (entry.getEntryType() == CanalEntry.EntryType.ROWDATA)
                            rows += CanalEntry.RowChange.parseFrom(entry.getStoreValue()).getRowDatasCount();
                    canal.ack(message.getId());
                    answer.setLength(0);
                    answer.append("rows ").append(rows).append(' ').append((System.nanoTime() - begin) / 1000000).append('\n');
                }
                break;
            }
            case "ack": canal.ack(Long.parseLong(words[1])); break;
            case "rollback": if (words.length > 1) canal.rollback(Long.parseLong(words[1])); else canal.rollback(); break;
            case "unsubscribe": canal.unsubscribe(); break;
            case "disconnect": canal.disconnect(); break;
            default: throw new IllegalArgumentException(words[0]);
        }
    }

    static void show(Message message, StringBuilder answer) throws Exception {
        answer.append("batch ").append(message.getId()).append('\n');
        for (CanalEntry.Entry entry : message.getEntries()) {
            CanalEntry.Header header = entry.getHeader();
            answer.append(entry.getEntryType()).append(' ').append(header.getLogfileOffset());
            if (entry.getEntryType() == CanalEntry.EntryType.ROWDATA) {
                CanalEntry.RowChange change = CanalEntry.RowChange.parseFrom(entry.getStoreValue());
                answer.append(' ').append(header.getSchemaName()).append('.').append(header.getTableName());
                answer.append(' ').append(change.getEventType());
                if (change.getIsDdl()) answer.append(' ').append(change.getSql().replace('\n', ' '));
                for (CanalEntry.RowData row : change.getRowDatasList()) {
                    answer.append("\n ");
                    image("-", row.getBeforeColumnsList(), answer);
                    image("+", row.getAfterColumnsList(), answer);
                }
            }
            answer.append('\n');
        }
    }

    static void image(String sign, List<CanalEntry.Column> columns, StringBuilder answer) {
        for (CanalEntry.Column column : columns)
            answer.append(' ').append(sign).append(column.getName()).append(column.getIsKey() ? "!" : "")
                .append(column.getUpdated() ? "*" : "").append('=')
                .append(column.getIsNull() ? "NULL" : "'" + column.getValue().replace('\n', ' ') + "'");
    }
}
