-- Retention deletes a packet's inbox row with the packet.

CREATE INDEX inbox_packet ON inbox (packet);
