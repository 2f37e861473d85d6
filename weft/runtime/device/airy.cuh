// The Airy function Ai, for float and double, one meaning on the host and on the device; DLMF 9.
#pragma once

#include "weft/special.cuh"

namespace weft {
namespace special {
namespace detail {

// Ai(3 t - 2), and as functions of 2 (x0 / x)^(3/2) - 1 and 2 (x0 / z)^3 - 1 the smooth parts of Ai(x) from x0 = 1 on and of
// Ai(-z) from z = 5 on (DLMF 9.7.5, 9.7.9): interpolated at 64 Chebyshev points with 40 digits.
template <class T> WEFT_FUNCTION T airy_near(T t) {
    constexpr double c[] = {
        0.18632707858433928, 0.06865982290459303, 0.08117941987332836, -0.3160854283944237, 0.03004149117549067,
        0.15645808192218807, -0.07185986251813795, -0.013959975328871315, 0.018909976595326932, -0.003580038299028628,
        -0.0015287140401770496, 0.0008325352832604742, -6.0239388004365396e-05, -5.9594955142060644e-05,
        1.8782031146883586e-05, 6.269049055961756e-08, -1.2387652064249862e-06, 2.5365209753841896e-07,
        1.703167725613829e-08, -1.6143902830322745e-08, 2.230156100930038e-09, 3.0074534580068567e-10,
        -1.4448494065955738e-10, 1.3298555738112736e-11, 2.994197881804366e-12, -9.42068080103912e-13, 5.348769719102421e-14,
        2.0470491065483502e-14, -4.663956451304745e-15, 1.2799647153037362e-16, 1.0418531804926794e-16,
        -1.807100072656653e-17};
    return chebyshev<T, 21>(c, t);
}
template <class T> WEFT_FUNCTION T airy_far(T t) {
    constexpr double c[] = {
        0.2718740351103066, -0.0091443848250055, 0.0009010457337825075, -0.00013941841272214914, 2.738158157852094e-05,
        -6.275042111995942e-06, 1.606484418483152e-06, -4.476392158510355e-07, 1.3346358746516685e-07,
        -4.207353342632158e-08, 1.3902199024636421e-08, -4.783184806804818e-09, 1.704789790746561e-09,
        -6.268389576018443e-10, 2.369824276612219e-10, -9.18641139267555e-11, 3.642785430376733e-11, -1.4747555172589307e-11,
        6.085100655664285e-12, -2.5552772234878823e-12, 1.0906187250529385e-12, -4.725870319654403e-13,
        2.0769690647720754e-13, -9.249762148175747e-14, 4.1709672345894733e-14, -1.902990936622559e-14,
        8.779067693061953e-15, -4.092755921006152e-15, 1.927107034077519e-15, -9.160203395985477e-16, 4.393575136975658e-16,
        -2.1255173528685387e-16, 1.0367613803897425e-16, -5.0969087443779544e-17, 2.524679607576122e-17,
        -1.2596345404477845e-17, 6.328463601049447e-18, -3.2007533647809724e-18};
    return chebyshev<T, 14>(c, t);
}
template <class T> WEFT_FUNCTION T airy_f(T t) {
    constexpr double c[] = {
        0.9996723415461005, -0.0003255483561055322, 2.069745155969119e-06, -3.890961736474424e-08, 1.3645959446950337e-09,
        -7.265563438866682e-11, 5.234675629062907e-12, -4.749669415821452e-13, 5.172156139604189e-14, -6.533725295545284e-15,
        9.33927407277721e-16, -1.4823330512580455e-16, 2.5745988399644002e-17};
    return chebyshev<T, 5>(c, t);
}
template <class T> WEFT_FUNCTION T airy_g(T t) {
    constexpr double c[] = {
        0.06911528040160503, -0.0003251060364586695, 3.945977743866323e-06, -1.068929090514341e-07, 4.800334718951617e-09,
        -3.0691067169997637e-10, 2.5517594369013928e-11, -2.601606731752434e-12, 3.123666855119186e-13,
        -4.2903251712839485e-14, 6.596710595977435e-15, -1.116833216041688e-15, 2.0551350158850327e-16,
        -4.0680056098438254e-17, 8.589182631392619e-18, -1.921018818902054e-18};
    return chebyshev<T, 6>(c, t);
}

// 2/3 x^(3/2) as a sum of two.
template <class T> struct AiryPhase {
    T high, low;
    WEFT_FUNCTION explicit AiryPhase(T x) {
        const T root = weft::sqrt(x);
        const T product = x * root;
        const T lost = weft::fma(x, root, -product) + T(0.5) * root * weft::fma(-root, root, x);
        high = product / T(1.5);
        low = (weft::fma(high, T(-1.5), product) + lost) / T(1.5);
    }
};

}  // namespace detail

// NaN at the infinities, as PyTorch's.
template <class T> WEFT_LONG_FUNCTION T airy_ai(T x) {
    if (!is_finite(x)) return T(NAN);
    if (absolute(x + T(2)) <= T(3)) return detail::airy_near((x + T(2)) / T(3));
    const T size = absolute(x);
    const detail::AiryPhase<T> zeta(size);
    const T root = weft::sqrt(weft::sqrt(size));
    if (x > T(0)) {
        if (x > T(120)) return T(0);
        const T part = weft::exp(T(-0.5) * zeta.high);  // in two parts: all of it may be no normal number
        return part * (detail::airy_far(T(2) / (x * weft::sqrt(x)) - T(1)) / root * (T(1) - zeta.low)) * part;
    }
    const T sine = weft::sin(zeta.high), cosine = weft::cos(zeta.high);
    const T more = weft::sin(zeta.low), most = weft::cos(zeta.low);
    const T s = sine * most + cosine * more, c = cosine * most - sine * more;
    const T near = T(5) / size;
    const T t = T(2) * near * near * near - T(1);
    const T value = (s + c) * detail::airy_f(t) - (c - s) * (detail::airy_g(t) / zeta.high);
    return T(0.3989422804014327) / root * value;
}

}  // namespace special
}  // namespace weft
