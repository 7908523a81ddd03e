package org.apache.kafka.common.requests;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;

import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Errors;

/**
 * Reads lines "ERROR REQUEST RESPONSE" (a name, and frames without their size in hexadecimal digits). Prints for each what Kafka's own
 * client would answer to the request with this error, and what the response says, separated by a tab; a dash where Kafka has no answer.
 */
public final class ErrorResponses {
    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            out.println(compared(Errors.valueOf(words[0]), bytes(words[1]), bytes(words[2])));
        }
        out.flush();
    }

    private static ByteBuffer bytes(String digits) {
        return ByteBuffer.wrap(HexFormat.of().parseHex(digits));
    }

    private static String compared(Errors error, ByteBuffer request, ByteBuffer response) {
        RequestHeader header;
        AbstractResponse expected;
        try {
            header = RequestHeader.parse(request);
            expected = AbstractRequest.parseRequest(header.apiKey(), header.apiVersion(), new ByteBufferAccessor(request)).request
                .getErrorResponse(0, error.exception());
        } catch (RuntimeException refused) {
            // A recorded request that is wrong on purpose.
            return "-\t-";
        }
        short version = header.apiVersion();
        if (expected == null) {
            return "-\t-";
        }
        ByteBuffer written = expected.serializeWithHeader(header.toResponseHeader(), version);
        return said(header, written) + "\t" + said(header, response);
    }

    private static String said(RequestHeader header, ByteBuffer response) {
        ResponseHeader.parse(response, header.apiKey().responseHeaderVersion(header.apiVersion()));
        return AbstractResponse.parseResponse(header.apiKey(), new ByteBufferAccessor(response), header.apiVersion()).data().toString();
    }
}
