class Absent {
  constructor() {
    throw new Error("libsignal is not part of this image");
  }
}
exports.ProtocolAddress = exports.SessionBuilder = exports.SessionCipher = exports.SessionRecord = Absent;
