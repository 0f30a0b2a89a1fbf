"""The Helsinki region as the simulator knows it: a table of places and a table of lines.

Both are rough approximations written by hand for this project: well-known squares, stations and districts, rounded to
some tens of metres, and lines that join them much as the city's trams, buses, trains and metro do. They are no copy of
a timetable or of a stop register, and they are good enough for counting vehicles on a map, not for finding one's way.

>>> network = helsinki()
>>> len(network.lines) > 40, sorted({line.mode for line in network.lines})
(True, ['bus', 'metro', 'train', 'tram'])
"""

from __future__ import annotations

from functools import cache

from headrace_transit.simulator.network import Line, Network, mode_of

#: Rough coordinates (latitude, longitude), own approximations.
PLACES: dict[str, tuple[float, float]] = {
    "Rautatientori": (60.1708, 24.9435),
    "Helsinki": (60.1725, 24.9410),
    "Elielinaukio": (60.1717, 24.9385),
    "Kamppi": (60.1687, 24.9315),
    "Ylioppilastalo": (60.1689, 24.9412),
    "Senaatintori": (60.1693, 24.9525),
    "Kauppatori": (60.1677, 24.9535),
    "Helsingin yliopisto": (60.1712, 24.9470),
    "Katajanokka": (60.1665, 24.9685),
    "Hakaniemi": (60.1790, 24.9515),
    "Karhupuisto": (60.1838, 24.9520),
    "Kallion kirkko": (60.1843, 24.9490),
    "Sörnäinen": (60.1872, 24.9600),
    "Kalasatama": (60.1875, 24.9770),
    "Vallila": (60.1945, 24.9590),
    "Kumpula": (60.2030, 24.9640),
    "Arabia": (60.2075, 24.9790),
    "Koskela": (60.2165, 24.9660),
    "Pohjolanaukio": (60.2160, 24.9490),
    "Mäkelänrinne": (60.2000, 24.9480),
    "Pasila": (60.1989, 24.9337),
    "Linnanmäki": (60.1885, 24.9420),
    "Kansallismuseo": (60.1750, 24.9320),
    "Ooppera": (60.1815, 24.9285),
    "Töölöntori": (60.1797, 24.9225),
    "Kansaneläkelaitos": (60.1890, 24.9155),
    "Meilahti": (60.1905, 24.9080),
    "Ruskeasuo": (60.2025, 24.9050),
    "Munkkiniemi": (60.1975, 24.8810),
    "Munkkivuori": (60.2055, 24.8790),
    "Pajamäki": (60.2165, 24.8610),
    "Viiskulma": (60.1615, 24.9395),
    "Eira": (60.1575, 24.9385),
    "Olympiaterminaali": (60.1607, 24.9570),
    "Hietalahti": (60.1632, 24.9290),
    "Hernesaari": (60.1510, 24.9250),
    "Ruoholahti": (60.1633, 24.9145),
    "Jätkäsaari": (60.1560, 24.9200),
    "Länsiterminaali": (60.1505, 24.9145),
    "Saukonpaasi": (60.1585, 24.9080),
    "Lauttasaari": (60.1595, 24.8790),
    "Vattuniemi": (60.1520, 24.8870),
    "Koivusaari": (60.1640, 24.8555),
    "Keilaniemi": (60.1755, 24.8300),
    "Aalto-yliopisto": (60.1848, 24.8245),
    "Laajalahti": (60.2000, 24.8120),
    "Tapiola": (60.1755, 24.8045),
    "Westendinasema": (60.1695, 24.8060),
    "Urheilupuisto": (60.1742, 24.7800),
    "Niittykumpu": (60.1700, 24.7630),
    "Matinkylä": (60.1597, 24.7380),
    "Finnoo": (60.1555, 24.7115),
    "Kaitaa": (60.1500, 24.6910),
    "Soukka": (60.1445, 24.6740),
    "Espoonlahti": (60.1487, 24.6560),
    "Kivenlahti": (60.1545, 24.6350),
    "Olari": (60.1775, 24.7400),
    "Kulosaari": (60.1890, 25.0085),
    "Herttoniemi": (60.1948, 25.0315),
    "Laajasalo": (60.1730, 25.0480),
    "Siilitie": (60.2055, 25.0445),
    "Roihupelto": (60.2135, 25.0560),
    "Itäkeskus": (60.2100, 25.0775),
    "Myllypuro": (60.2235, 25.0765),
    "Kontula": (60.2360, 25.0830),
    "Mellunmäki": (60.2387, 25.1105),
    "Puotila": (60.2148, 25.0935),
    "Rastila": (60.2055, 25.1215),
    "Vuosaari": (60.2073, 25.1425),
    "Viikki": (60.2270, 25.0150),
    "Viikinmäki": (60.2265, 24.9905),
    "Oulunkylä": (60.2290, 24.9675),
    "Käpylä": (60.2200, 24.9470),
    "Maunula": (60.2300, 24.9300),
    "Paloheinä": (60.2510, 24.9260),
    "Pirkkola": (60.2310, 24.9090),
    "Ilmala": (60.2083, 24.9205),
    "Huopalahti": (60.2183, 24.8935),
    "Pohjois-Haaga": (60.2300, 24.8830),
    "Kannelmäki": (60.2395, 24.8770),
    "Malminkartano": (60.2495, 24.8610),
    "Konala": (60.2380, 24.8430),
    "Myyrmäki": (60.2613, 24.8545),
    "Louhela": (60.2715, 24.8520),
    "Martinlaakso": (60.2785, 24.8520),
    "Vantaankoski": (60.2880, 24.8490),
    "Kivistö": (60.3145, 24.8465),
    "Aviapolis": (60.3045, 24.9565),
    "Lentoasema": (60.3155, 24.9685),
    "Leinelä": (60.3220, 25.0410),
    "Hiekkaharju": (60.3030, 25.0480),
    "Tikkurila": (60.2925, 25.0440),
    "Puistola": (60.2770, 25.0360),
    "Tapanila": (60.2635, 25.0290),
    "Malmi": (60.2505, 25.0105),
    "Pukinmäki": (60.2425, 24.9930),
    "Hakunila": (60.2770, 25.1100),
    "Koivukylä": (60.3235, 25.0590),
    "Rekola": (60.3330, 25.0720),
    "Korso": (60.3500, 25.0770),
    "Savio": (60.3810, 25.1000),
    "Kerava": (60.4045, 25.1055),
    "Valimo": (60.2225, 24.8760),
    "Pitäjänmäki": (60.2235, 24.8600),
    "Mäkkylä": (60.2215, 24.8420),
    "Leppävaara": (60.2195, 24.8135),
    "Kilo": (60.2180, 24.7810),
    "Kera": (60.2172, 24.7580),
    "Kauniainen": (60.2105, 24.7300),
    "Koivuhovi": (60.2070, 24.7030),
    "Tuomarila": (60.2060, 24.6800),
    "Espoo": (60.2053, 24.6565),
    "Kauklahti": (60.1905, 24.5975),
    "Jupperi": (60.2440, 24.7900),
}

#: Name, mode, operator's number, minutes between two vehicles: way points. An indented line continues the one above.
LINES = """
1 tram 40 10: Eira > Viiskulma > Kauppatori > Hakaniemi > Kallion kirkko > Vallila > Pohjolanaukio
2 tram 40 10: Olympiaterminaali > Kauppatori > Senaatintori > Ylioppilastalo > Kamppi > Töölöntori > Ooppera >
    Linnanmäki > Pasila
3 tram 40 10: Olympiaterminaali > Eira > Viiskulma > Ylioppilastalo > Rautatientori > Hakaniemi > Kallion kirkko >
    Linnanmäki > Meilahti
4 tram 40 8: Katajanokka > Senaatintori > Ylioppilastalo > Kansallismuseo > Ooppera > Kansaneläkelaitos > Meilahti >
    Munkkiniemi
5 tram 40 12: Katajanokka > Kauppatori > Rautatientori
6 tram 40 8: Hernesaari > Hietalahti > Ylioppilastalo > Rautatientori > Hakaniemi > Sörnäinen > Vallila > Kumpula >
    Arabia
7 tram 40 10: Länsiterminaali > Kamppi > Rautatientori > Senaatintori > Hakaniemi > Sörnäinen > Mäkelänrinne >
    Pasila
8 tram 40 10: Saukonpaasi > Ruoholahti > Töölöntori > Ooppera > Linnanmäki > Karhupuisto > Sörnäinen > Arabia
9 tram 40 8: Jätkäsaari > Kamppi > Rautatientori > Hakaniemi > Kallion kirkko > Linnanmäki > Pasila > Ilmala
10 tram 40 8: Viiskulma > Ylioppilastalo > Kansallismuseo > Ooppera > Kansaneläkelaitos > Ruskeasuo > Huopalahti
13 tram 40 8: Kalasatama > Vallila > Mäkelänrinne > Pasila
15 tram 40 6: Itäkeskus > Roihupelto > Viikki > Viikinmäki > Oulunkylä > Maunula > Pirkkola > Huopalahti > Valimo >
    Pitäjänmäki > Leppävaara > Laajalahti > Aalto-yliopisto > Keilaniemi
M1 metro 50 5: Kivenlahti > Espoonlahti > Soukka > Kaitaa > Finnoo > Matinkylä > Niittykumpu > Urheilupuisto >
    Tapiola > Aalto-yliopisto > Keilaniemi > Koivusaari > Lauttasaari > Ruoholahti > Kamppi > Rautatientori >
    Helsingin yliopisto > Hakaniemi > Sörnäinen > Kalasatama > Kulosaari > Herttoniemi > Siilitie > Itäkeskus >
    Puotila > Rastila > Vuosaari
M2 metro 50 5: Tapiola > Aalto-yliopisto > Keilaniemi > Koivusaari > Lauttasaari > Ruoholahti > Kamppi >
    Rautatientori > Helsingin yliopisto > Hakaniemi > Sörnäinen > Kalasatama > Kulosaari > Herttoniemi > Siilitie >
    Itäkeskus > Myllypuro > Kontula > Mellunmäki
P train 90 10: Helsinki > Pasila > Ilmala > Huopalahti > Pohjois-Haaga > Kannelmäki > Malminkartano > Myyrmäki >
    Louhela > Martinlaakso > Vantaankoski > Kivistö > Aviapolis > Lentoasema > Leinelä > Hiekkaharju > Tikkurila >
    Puistola > Tapanila > Malmi > Pukinmäki > Oulunkylä > Käpylä > Pasila > Helsinki
K train 90 10: Helsinki > Pasila > Käpylä > Oulunkylä > Pukinmäki > Malmi > Tapanila > Puistola > Tikkurila >
    Hiekkaharju > Koivukylä > Rekola > Korso > Savio > Kerava
A train 90 10: Helsinki > Pasila > Ilmala > Huopalahti > Valimo > Pitäjänmäki > Mäkkylä > Leppävaara
E train 90 15: Helsinki > Pasila > Huopalahti > Leppävaara > Kilo > Kera > Kauniainen > Koivuhovi > Tuomarila >
    Espoo > Kauklahti
R train 90 20: Helsinki > Pasila > Tikkurila > Kerava
14 bus 22 10: Hernesaari > Hietalahti > Kamppi > Töölöntori > Meilahti > Munkkivuori > Pajamäki
16 bus 22 15: Kulosaari > Kalasatama > Sörnäinen > Hakaniemi > Rautatientori
18 bus 22 12: Eira > Kamppi > Töölöntori > Meilahti > Munkkivuori
20 bus 22 10: Vattuniemi > Lauttasaari > Ruoholahti > Kamppi > Elielinaukio > Kansallismuseo > Ooppera > Pasila
23 bus 22 10: Rautatientori > Hakaniemi > Linnanmäki > Pasila > Ruskeasuo
40 bus 18 10: Elielinaukio > Ooppera > Ruskeasuo > Huopalahti > Pohjois-Haaga > Kannelmäki
41 bus 18 12: Kamppi > Meilahti > Huopalahti > Konala > Malminkartano
52 bus 18 15: Kalasatama > Kumpula > Koskela > Maunula > Huopalahti > Munkkiniemi
55 bus 12 10: Rautatientori > Hakaniemi > Sörnäinen > Vallila > Koskela
57 bus 12 12: Kontula > Myllypuro > Viikki > Koskela > Pasila > Munkkiniemi
58 bus 12 12: Itäkeskus > Herttoniemi > Kalasatama > Vallila > Pasila > Meilahti > Munkkivuori
65 bus 12 10: Kamppi > Rautatientori > Hakaniemi > Mäkelänrinne > Käpylä > Oulunkylä
70 bus 12 8: Kamppi > Rautatientori > Hakaniemi > Sörnäinen > Kumpula > Koskela > Viikinmäki > Pukinmäki > Malmi
71 bus 12 10: Rautatientori > Hakaniemi > Sörnäinen > Arabia > Viikki > Malmi
78 bus 12 10: Rautatientori > Hakaniemi > Kalasatama > Viikki > Malmi > Puistola
84 bus 22 10: Kalasatama > Kulosaari > Herttoniemi > Laajasalo
90 bus 22 12: Itäkeskus > Puotila > Rastila > Vuosaari
111 bus 12 12: Westendinasema > Tapiola > Niittykumpu > Matinkylä > Finnoo
113 bus 18 12: Tapiola > Aalto-yliopisto > Laajalahti > Leppävaara > Jupperi
118 bus 18 15: Tapiola > Olari > Espoo > Kauklahti
200 bus 18 10: Elielinaukio > Ooppera > Meilahti > Munkkivuori > Leppävaara > Kilo > Kauniainen > Espoo
231 bus 18 15: Elielinaukio > Meilahti > Munkkivuori > Pitäjänmäki > Leppävaara > Jupperi
300 bus 22 10: Elielinaukio > Ruskeasuo > Huopalahti > Kannelmäki > Konala > Myyrmäki
400 bus 22 10: Elielinaukio > Ruskeasuo > Pohjois-Haaga > Kannelmäki > Myyrmäki > Martinlaakso > Vantaankoski
500 bus 22 8: Munkkivuori > Meilahti > Pasila > Vallila > Kalasatama > Kulosaari > Herttoniemi > Itäkeskus
510 bus 22 8: Westendinasema > Keilaniemi > Aalto-yliopisto > Munkkiniemi > Ruskeasuo > Pasila > Kalasatama >
    Herttoniemi
520 bus 18 12: Matinkylä > Olari > Leppävaara > Konala > Myyrmäki > Martinlaakso
560 bus 12 8: Rastila > Vuosaari > Mellunmäki > Kontula > Malmi > Paloheinä > Kannelmäki > Myyrmäki
570 bus 12 12: Mellunmäki > Hakunila > Tikkurila > Hiekkaharju > Aviapolis > Lentoasema
600 bus 12 8: Rautatientori > Hakaniemi > Mäkelänrinne > Käpylä > Paloheinä > Aviapolis > Lentoasema
615 bus 12 12: Rautatientori > Hakaniemi > Vallila > Koskela > Oulunkylä > Pukinmäki > Tikkurila > Lentoasema
717 bus 12 15: Rautatientori > Sörnäinen > Koskela > Malmi > Tapanila > Hakunila > Tikkurila > Korso
801 bus 22 15: Viikki > Myllypuro > Itäkeskus > Herttoniemi > Laajasalo
"""


@cache
def helsinki() -> Network:
    """Give the network of the Helsinki region; its paths are computed once per process."""
    return Network(PLACES, tuple(_line(row) for row in LINES.strip().replace("\n    ", " ").splitlines()))


def _line(row: str) -> Line:
    head, places = row.split(":")
    name, mode, operator, headway = head.split()
    way = tuple(place.strip() for place in places.split(">"))
    return Line(name, mode_of(mode), int(operator), way, float(headway))
